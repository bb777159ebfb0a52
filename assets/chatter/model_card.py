"""Measure `chatter.onnx` with onnxruntime against the grammar, and write the model card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from assets.chatter.grammar import MOODS, TOPICS, may_say
from assets.chatter.text import END, ROOM, Line, Vocabulary, lines, prompt
from assets.measuring import FileFacts, open_session

MEASURED, SEED = 900, 77
REQUIRED = 0.9


@dataclass(frozen=True)
class Figures:
    """What the card states; shares are from 0 to 1, perplexities a word.

    said: (line, sentence, accepted) of everything that was generated.
    """

    perplexity: float
    grammar_perplexity: float
    said: list[tuple[Line, str, bool]]

    @property
    def accepted(self) -> float:
        return float(np.mean([fits for _, _, fits in self.said]))

    def accepted_of(self, topic: str) -> float:
        return float(np.mean([fits for line, _, fits in self.said if line.scene.topic == topic]))


class Reader:
    """The network for many rows at once; each step feeds one word to every row."""

    def __init__(self, path: Path, rows: int) -> None:
        self.session = open_session(path)
        self.memory = [
            np.zeros((2, rows, *[int(size) for size in given.shape[2:]]), np.float32)
            for given in self.session.get_inputs()[3:]
        ]

    def step(
        self, words: npt.NDArray[np.int64], place: int, chances: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The word that comes next in each row, and the probability of every word."""
        feed = {"word": words, "place": np.full(len(words), place), "chance": chances}
        feed |= {f"memory_{layer}": kept for layer, kept in enumerate(self.memory)}
        following, probabilities, *self.memory = self.session.run(None, feed)
        return following, probabilities


def measure(folder: Path, count: int = MEASURED) -> Figures:
    """Have the network judge `count` held-out sentences, and then say something of its own in their place."""
    vocabulary = Vocabulary.of_grammar()
    given = lines(count, SEED, held_out=True)
    prompts = [vocabulary.encode(prompt(line.scene, line.turn, line.heard)) for line in given]
    texts = np.zeros((count, ROOM), np.int64)
    scored = np.zeros((count, ROOM), np.bool_)
    for row, (line, before) in enumerate(zip(given, prompts, strict=True)):
        text = before + vocabulary.encode(f"{line.said} {END}")
        texts[row, : len(text)] = text
        scored[row, len(before) : len(text)] = True
    reader, total = Reader(folder / "chatter.onnx", count), 0.0
    for place in range(ROOM - 1):
        _, probabilities = reader.step(texts[:, place], place, np.zeros(count, np.float32))
        told = probabilities[np.arange(count), texts[:, place + 1]]
        total += float(np.log(np.maximum(told, 1e-12))[scored[:, place + 1]].sum())
    said = generate(folder, prompts)
    judged = [
        (line, text, may_say(line.scene, line.turn, text))
        for line, text in zip(given, (vocabulary.decode(words) for words in said), strict=True)
    ]
    grammar = sum(line.chance for line in given)
    return Figures(float(np.exp(-total / scored.sum())), float(np.exp(-grammar / scored.sum())), judged)


def generate(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    """What the network says to each prompt, as word numbers without END."""
    rng, rows = np.random.default_rng(SEED), len(prompts)
    reader = Reader(folder / "chatter.onnx", rows)
    texts, ended = [list(before) for before in prompts], np.zeros(rows, np.bool_)
    for place in range(ROOM):
        words = np.array([text[min(place, len(text) - 1)] for text in texts])
        following, _ = reader.step(words, place, rng.random(rows, np.float32))
        for row, word in enumerate(following.tolist()):
            if place == len(texts[row]) - 1 and not ended[row]:
                ended[row] = word == 0
                texts[row] += [] if word == 0 else [word]
    return [text[len(before) :] for text, before in zip(texts, prompts, strict=True)]


CARD = """\
# chatter: says what a villager would say, a word a step

Written by `train_chatter.py` in this folder; do not edit it by hand.

| measured on {count} held-out lines | |
| --- | --- |
| perplexity of what the grammar says, a word | {perplexity:.3f} |
| the grammar's own, the least there can be | {grammar_perplexity:.3f} |
| generated sentences that the grammar accepts | {accepted:.1%} |
| of those, sentences that training did not have | {new:.1%} |

Measured on `chatter.onnx` with onnxruntime. A line is held out with its whole scene: training never has the
same two people, in the same order, talk about the same topic. A sentence is accepted if the grammar could
have said it there: by this speaker, to this listener, in this mood, in answer to what was heard. One word out
of place, and it is not.

| topic | accepted |
| --- | --- |
{topics}

What it said (held-out scenes, the first of each topic and mood):

{samples}

Not accepted:

{faults}

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `word` (input) | int64 (speakers) | each speaker's latest word: its line in `words.txt`, from 0 |
| `place` (input) | int64 (speakers) | where it stands in the text, 0 to {last} |
| `chance` (input) | float32 (speakers) | from 0 to 1: decides which of the likely words comes next |
| `memory_0` ... (input) | float32 (2, speakers, {room}, {width}) | keys and values of each layer so far |
| `next` (output) | int64 (speakers) | the word that follows; 0 ends the sentence |
| `chances` (output) | float32 (speakers, {words}) | the probability of each word, before the choice |
| `kept_0` ... (output) | as `memory_0` | the memory with this word in it: the next step's input |

A text is: speaker, listener, `<mood>`, `<topic>`, the sentence that was heard (none, if nobody spoke),
`<say>`, and then what the network says. While a prompt is read, `next` is left aside. Giving a row the word
and place of its latest step again changes nothing. The choice: probabilities at a temperature of 0.8, without
words that are 20 times less likely than the likeliest. `speakers` is a named dynamic dimension.

## Network

A decoder of {layers} layers, {width} wide, with 4 heads, over {words} words; {weights:,} weights,
{kilobytes:.0f} kB, opset {opset}, one file without external data.

## Data and training

All text is made by `grammar.py`: eleven people, four moods, five topics, conversations of three turns.
Training took {texts:,} lines. From the root of the repository:

    pip install -e .[train,test]
    python -m assets.chatter.train_chatter

It takes about two minutes on an idle core and replaces `chatter.onnx`, `words.txt` and this file;
`--card` measures again without training. Seeds are fixed; another machine or library version may still differ
in the last decimals.

## Use and limits

Made for the `chatter` demo. It knows {words} words, one village and nothing else.

## Licence

The model and its scripts are under the project's MIT licence. All data come from the script.
"""


def write_card(folder: Path, training_seed: int, texts: int) -> str:
    """Measure the model in a folder and write its card. Raises RuntimeError where too little is accepted."""
    path = folder / "chatter.onnx"
    figures = measure(folder)
    told = f"perplexity {figures.perplexity:.3f} ({figures.grammar_perplexity:.3f}), {figures.accepted:.1%}"
    if figures.accepted < REQUIRED:
        faults = "\n".join(f"{line.said} | {text}" for line, text, fits in figures.said[:40] if not fits)
        raise RuntimeError(f"{told} of the sentences are accepted; required: {REQUIRED:.0%}\n{faults}")
    known = {line.said for line in lines(texts, training_seed)}
    good = [(line, text) for line, text, fits in figures.said if fits]
    shown = []
    for topic in TOPICS:
        for mood in MOODS:
            found = [
                f"- {line.scene.speaker(line.turn)}, {mood}, {topic}"
                + (f', hearing "{line.heard}"' if line.heard else "")
                + f': "{text}"'
                for line, text in good
                if line.scene.topic == topic and line.scene.mood(line.turn) == mood and line.turn
            ]
            shown += found[:1]
    wrong = [f'- "{text}" for "{line.said}"' for line, text, fits in figures.said if not fits][:6]
    inputs = onnx.load_model(path).graph.input
    card = CARD.format(
        count=len(figures.said),
        perplexity=figures.perplexity,
        grammar_perplexity=figures.grammar_perplexity,
        accepted=figures.accepted,
        new=np.mean([text not in known for _, text in good]),
        topics="\n".join(f"| {topic} | {figures.accepted_of(topic):.1%} |" for topic in TOPICS),
        samples="\n".join(shown),
        faults="\n".join(wrong) or "- none",
        last=ROOM - 1,
        room=ROOM,
        width=inputs[3].type.tensor_type.shape.dim[3].dim_value,
        words=len(Vocabulary.of_grammar().words),
        layers=len(inputs) - 3,
        texts=texts,
        **vars(FileFacts.of(path)),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    return f"{told} accepted"

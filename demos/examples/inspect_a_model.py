"""What a model wants and gives: its inputs, outputs and layers."""

from gameglue import App, Model, ModelLoader


def describe(model: Model) -> list[str]:
    """A line for each input and output, and one about the layers."""
    lines = [f"input {item.name}: {item.dtype} {item.shape}" for item in model.inputs]
    lines += [f"output {item.name}: {item.dtype} {item.shape}" for item in model.outputs]
    kinds = ", ".join(layer.op_type for layer in model.layers)
    return [*lines, f"{len(model.layers)} layers: {kinds}"]


def main() -> list[str]:
    """The digit network."""
    with App("inspect", headless=True) as app:
        return describe(ModelLoader.load(app.resources.find("digits/digits.onnx")))


if __name__ == "__main__":
    print("\n".join(main()))

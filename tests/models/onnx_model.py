"""A model of meanings in ONNX, made here: each word has a vector, and a text the mean of its words'."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np


def write_model(folder: Path, words: Mapping[str, Sequence[float]], *, file: str = "model.onnx") -> Path:
    """Write what an export of a model has: the graph, the tokenizer, and what is told of both."""
    # What few tests need takes a second to import.
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    dimension = len(next(iter(words.values())))
    table = np.array([[0.0] * dimension, [0.0] * dimension, *words.values()], dtype=np.float32)
    shape = ["texts", "tokens"]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"], axis=0)],
        "words",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, dimension])],
        [numpy_helper.from_array(table, "table")],
    )
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / file).write_bytes(model.SerializeToString())
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128, "pad_token": "[PAD]"}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    return folder

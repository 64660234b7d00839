#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""model.py FILE LAYERS WIDTH HIDDEN: writes a Llama of random weights (f16) as a GGUF file, always the same for the same
sizes. WIDTH: of the embedding; HIDDEN: of the feed-forward layer. Its tokens are the 256 bytes, so that a program can
complete any text. Needs Debian's python3-gguf."""

import sys

import gguf
import numpy

HEAD = 64  # the width of an attention head
CONTEXT = 512
# Every tensor is a window into one block of random numbers, because making all numbers takes longer than writing them.
RANDOM_VALUES = 1 << 24


def add_tokens(writer):
    """Special tokens, and a token for each byte. Gives the number of tokens."""
    kind = gguf.TokenType
    tokens = [("<unk>", kind.UNKNOWN), ("<s>", kind.CONTROL), ("</s>", kind.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", kind.BYTE) for byte in range(256)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([int(token) for _, token in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens)


def add_sizes(writer, layers, width, hidden):
    """The model's dimensions."""
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(width // HEAD)
    writer.add_head_count_kv(width // HEAD)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)


class Weights:
    """Adds tensors to the file."""

    def __init__(self, writer):
        self.writer, self.at = writer, 0
        values = numpy.random.default_rng(1).standard_normal(RANDOM_VALUES, dtype=numpy.float32)
        self.values = (values * 0.02).astype(numpy.float16)

    def matrix(self, name, rows, columns):
        """Random values; each matrix begins at another one."""
        self.at = (self.at + 4099) % RANDOM_VALUES
        values = numpy.resize(self.values[self.at:], (rows, columns))
        self.writer.add_tensor(f"{name}.weight", values)

    def ones(self, name, width):
        """Of a normalization."""
        self.writer.add_tensor(f"{name}.weight", numpy.ones(width, numpy.float32))


def main(path, layers, width, hidden):
    """Writes the file."""
    writer = gguf.GGUFWriter(path, "llama")
    add_sizes(writer, layers, width, hidden)
    n_tokens = add_tokens(writer)
    weights = Weights(writer)
    weights.matrix("token_embd", n_tokens, width)
    weights.ones("output_norm", width)
    weights.matrix("output", n_tokens, width)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        for norm in "attn_norm", "ffn_norm":
            weights.ones(prefix + norm, width)
        for part in "attn_q", "attn_k", "attn_v", "attn_output":
            weights.matrix(prefix + part, width, width)
        for part in "ffn_gate", "ffn_up":
            weights.matrix(prefix + part, hidden, width)
        weights.matrix(prefix + "ffn_down", width, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

# SPDX-License-Identifier: Apache-2.0
"""BERT learns a language: a masked language model of keras-hub, from scratch, on a TPU, a GPU or a CPU.

::

    python train.py --data gs://my-bucket/corpus.txt --layers 12 --heads 12 --width 768 --batch 256 --steps 100000

Killed at any instant it continues from the newest checkpoint and ends with the same loss: the checkpoint holds every
variable of model and optimizer, the seeds of dropout too, and the sentences and masks of a step depend only on the seed
and the step.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np
import tensorflow as tf

OUTPUT = Path(os.environ.get("TRC_OUTPUT_DIR", "output"))
CHECKPOINTS = Path(os.environ.get("TRC_CHECKPOINT_DIR", "checkpoints"))
PAD, UNKNOWN, MASK, FIRST_WORD = range(4)


def choose_strategy() -> Any:
    """Return the strategy for the promised accelerator; end with 69 if it is not there."""
    if os.environ.get("TRC_ACCEL") == "tpu":
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
            tf.tpu.experimental.initialize_tpu_system(resolver)
        except (tf.errors.OpError, ValueError) as error:
            print(f"the TPU did not initialise: {error}", file=sys.stderr)
            sys.exit(69)
        keras.config.set_dtype_policy("mixed_bfloat16")
        return tf.distribute.TPUStrategy(resolver)
    return tf.distribute.MirroredStrategy() if tf.config.list_physical_devices("GPU") else tf.distribute.get_strategy()


class Corpus:
    """The lines of a text as rows of numbers, one a word: the most frequent words have numbers of their own.

    :param options: of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        with tf.io.gfile.GFile(options.data) as file:
            lines = [line.lower().split()[: options.length] for line in file]
        lines = [line for line in lines if line]
        words = collections.Counter(word for line in lines for word in line).most_common(options.words)
        self.words = [word for word, _ in words]
        numbers = {word: number for number, word in enumerate(self.words, FIRST_WORD)}
        self._rows = np.full((len(lines), options.length), PAD, np.int32)
        for row, line in zip(self._rows, lines, strict=True):
            row[: len(line)] = [numbers.get(word, UNKNOWN) for word in line]

    def batches(self, first: int, last: int) -> Any:
        """Return the batches of some steps."""
        return tf.data.Dataset.range(first, last).map(self._batch, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _batch(self, step: Any) -> tuple[Any, Any, Any]:
        """Draw sentences, and hide one word in seven of them: mostly by a mask, sometimes by another word or itself."""
        batch, length = self._options.batch, self._options.length
        seeds = [tf.stack([tf.constant(self._options.seed + number, tf.int64), step]) for number in range(4)]
        picked = tf.random.stateless_uniform([batch], seeds[0], 0, len(self._rows), tf.int32)
        tokens = tf.gather(self._rows, picked)
        chance = tf.where(tokens >= FIRST_WORD, tf.random.stateless_uniform([batch, length], seeds[1]), -1.0)
        chosen, places = tf.math.top_k(chance, length // 7)
        hidden = tf.gather(tokens, places, batch_dims=1)
        how = tf.random.stateless_uniform(tf.shape(places), seeds[2])
        others = tf.random.stateless_uniform(
            tf.shape(places), seeds[3], FIRST_WORD, FIRST_WORD + len(self.words), tf.int32
        )
        shown = tf.where(how < 0.8, MASK, tf.where(how < 0.9, others, hidden))
        shown = tf.where(chosen > 0, shown, hidden)
        rows = tf.repeat(tf.range(batch)[:, None], length // 7, axis=1)
        inputs = {
            "token_ids": tf.tensor_scatter_nd_update(tokens, tf.stack([rows, places], axis=-1), shown),
            "segment_ids": tf.zeros_like(tokens),
            "padding_mask": tf.cast(tokens != PAD, tf.int32),
            "mask_positions": places,
        }
        return inputs, hidden, tf.cast(chosen > 0, tf.float32)


def build_model(options: argparse.Namespace, words: int) -> Any:
    """Return BERT with the head that guesses hidden words, ready for ``fit``."""
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=words + FIRST_WORD, num_layers=options.layers, num_heads=options.heads,
        hidden_dim=options.width, intermediate_dim=4 * options.width, max_sequence_length=options.length,
    )  # fmt: skip
    model = keras_hub.models.BertMaskedLM(backbone)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, options.steps, warmup_target=options.learning_rate, warmup_steps=max(1, options.steps // 10)
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.01), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def train(options: argparse.Namespace, model: Any, corpus: Corpus) -> None:
    """Train from the newest checkpoint to the last step; asked to stop, save the very step and end with 75."""
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    ends = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", bool(stops))
    )
    state = tf.train.Checkpoint(variables=[one.value for one in model.variables + model.optimizer.variables])
    manager = tf.train.CheckpointManager(state, str(CHECKPOINTS), max_to_keep=2)
    manager.restore_or_initialize()
    step = int(model.optimizer.iterations)
    print(f"training {model.count_params():,} weights, from step {step} of {options.steps}", flush=True)
    while step < options.steps:
        until = min(step - step % options.save_every + options.save_every, options.steps)
        losses = model.fit(corpus.batches(step, until), verbose=0, callbacks=[ends]).history["loss"]
        step = int(model.optimizer.iterations)
        manager.save(checkpoint_number=step)
        print(f"step {step}: loss {losses[0]:.4f}", flush=True)
        write_json("progress", step=step, total_steps=options.steps)
        if stops:
            sys.exit(75)


def write_json(name: str, **document: Any) -> None:
    """Replace a file of the output as a whole."""
    fresh = OUTPUT / f"{name}.json.tmp"
    fresh.write_text(json.dumps(document))
    fresh.replace(OUTPUT / f"{name}.json")


def main() -> None:
    """Train, and write weights, words and the loss."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    data = os.environ.get("TRC_DATA_URI")
    parser.add_argument("--data", default=data, required=not data, help="a text, a sentence a line, local or gs://")
    parser.add_argument("--words", type=int, default=30000, help="that have a number of their own")
    parser.add_argument("--length", type=int, default=128, help="words of a sentence at most")
    parser.add_argument("--layers", type=int, default=2, help="of the model; BERT-Base has 12")
    parser.add_argument("--heads", type=int, default=2, help="of each layer; BERT-Base has 12")
    parser.add_argument("--width", type=int, default=128, help="of each layer; BERT-Base has 768")
    parser.add_argument("--batch", type=int, default=64, help="sentences of a step, over all replicas")
    parser.add_argument("--steps", type=int, default=1000, help="training steps in all")
    parser.add_argument("--save-every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="the highest")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TRC_SEED") or 0), help="of everything random")
    options = parser.parse_args()
    keras.utils.set_random_seed(options.seed)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(options)
    with choose_strategy().scope():
        model = build_model(options, len(corpus.words))
        train(options, model, corpus)
    (OUTPUT / "words.txt").write_text("\n".join(corpus.words))
    model.save_weights(OUTPUT / "model.weights.h5")
    # No step trains on these batches: they measure the model, and every run of these options the same way.
    figures = model.evaluate(corpus.batches(options.steps, options.steps + 10), verbose=0, return_dict=True)
    write_json("metrics", loss=figures["loss"])


if __name__ == "__main__":
    main()

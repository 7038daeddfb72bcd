# SPDX-License-Identifier: Apache-2.0
# Names for the scripts; they work the same without make.
.PHONY: help demo test soak test-frameworks test-compose up down lint format docs

help:
	@echo "make demo          train a real model on a TPU of the local cloud, through the DAG tpu_train"
	@echo "make up            start Airflow with its UI on http://localhost:8080, against the local cloud"
	@echo "make down          end what 'make up' started"
	@echo "make test          run every check"
	@echo "make lint          run the static checks only"
	@echo "make soak          run the long tests: every fault in every phase, 200 kills, 2,000 interleavings (hours)"
	@echo "make test-frameworks  train with JAX, PyTorch and keras-hub, killed and resumed (installs 4 GB of packages)"
	@echo "make test-compose  build the images, bring up docker-compose.yaml and train in it (root, ten minutes)"
	@echo "make docs          build the searchable site of the documentation, build/docs/docs/index.html"
	@echo "make format        rewrite the code in the project's format"

docs:
	@scripts/docs

demo up down:
	@scripts/$@

test soak test-frameworks test-compose:
	@scripts/$@

lint:
	@scripts/test lint types imports

format:
	@scripts/format

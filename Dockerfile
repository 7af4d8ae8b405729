# syntax=docker/dockerfile:1
# Isthmus from nothing, on the host chip:
#   docker build --tag isthmus . && docker run --rm -it --shm-size 2g isthmus
# Ranks of the host chip share memory in /dev/shm, for which Docker's 64 MB are too little.

# Packages that the Makefile needs and does not install by itself. .devcontainer starts from here.
FROM python:3.11-slim-bookworm AS environment
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*
# PyTorch for CPUs: PyPI's brings 3 GB of CUDA.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

FROM environment
WORKDIR /isthmus
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip make build
ENV PATH=/isthmus/.venv/bin:$PATH
CMD ["make", "train"]

# SPDX-License-Identifier: Apache-2.0
# Two images from one tree: airflow (all of Airflow's processes) and localcloud (the stand-in for Google Cloud).
# docker compose builds both. Only what every builder has is used here: no BuildKit is needed.
ARG BASE_IMAGE=apache/airflow:3.3.2-python3.12

FROM ${BASE_IMAGE} AS wheel
# A mirror of the package index, where there is one; unset otherwise.
ARG PIP_INDEX_URL
WORKDIR /tmp/source
COPY pyproject.toml README.md LICENSE ./
COPY scripts/build_hooks ./scripts/build_hooks
COPY dags ./dags
COPY plugins ./plugins
COPY include ./include
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /tmp/wheel .


FROM ${BASE_IMAGE} AS airflow
ARG PIP_INDEX_URL
# The versions that this tree was tested with, and no other file of theirs than the one whose hash is written down.
COPY requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/requirements.txt
# The package is installed, and the plugins folder not mounted: the triggerer and the workers run the same code,
# which a folder that changes under running processes cannot promise.
COPY --from=wheel /tmp/wheel /tmp/wheel
RUN pip install --no-cache-dir --no-deps /tmp/wheel/*.whl
# The official image brings no byte code, and every container would compile Airflow for itself at each start. Files that are
# templates and no Python are among it, so the exit code says nothing.
RUN python -m compileall -q "$VIRTUAL_ENV/lib" >/dev/null 2>&1 || true

USER root
COPY docker/make_secrets.py docker/healthy.py /opt/airflow-tpu/
# A named volume takes owner and mode of the directory that it is first mounted on. Group 0 may write, whatever
# AIRFLOW_UID is: https://airflow.apache.org/docs/docker-stack/entrypoint.html#allowing-arbitrary-user-to-run-the-container
RUN mkdir -p /run/airflow-tpu/secrets /run/airflow-tpu/ui /run/airflow-tpu/database /run/airflow-tpu/broker \
        /opt/airflow/connections \
    && chown -R airflow:0 /run/airflow-tpu /opt/airflow/connections \
    && chmod 0775 /run/airflow-tpu /run/airflow-tpu/database /run/airflow-tpu/broker \
    && chmod 0770 /run/airflow-tpu/secrets /run/airflow-tpu/ui /opt/airflow/connections
USER airflow


FROM ${BASE_IMAGE} AS localcloud
ARG PIP_INDEX_URL
USER root
# No bubblewrap: Docker's seccomp profile refuses the namespaces that it needs, so TPU VMs run in the tier "sshd".
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends libnss-wrapper openssh-server \
    && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
    && mkdir -p /opt/localcloud /opt/airflow/connections /var/lib/localcloud \
    && chown airflow:0 /opt/localcloud /opt/airflow/connections /var/lib/localcloud \
    && chmod 0770 /opt/airflow/connections /var/lib/localcloud
USER airflow
# An environment of its own: the training scripts' TensorFlow and Airflow's packages do not meet.
COPY docker/localcloud-requirements.txt /tmp/
RUN python -m venv /opt/localcloud/venv \
    && PIP_USER=false /opt/localcloud/venv/bin/pip install --no-cache-dir --require-hashes \
        --requirement /tmp/localcloud-requirements.txt
COPY localcloud /opt/localcloud/localcloud
COPY include/catalogue /opt/localcloud/include/catalogue
COPY docker/localcloud-start docker/write_connections.py /opt/localcloud/
ENV PATH=/opt/localcloud/venv/bin:$PATH PYTHONPATH=/opt/localcloud
CMD ["bash", "/opt/localcloud/localcloud-start"]

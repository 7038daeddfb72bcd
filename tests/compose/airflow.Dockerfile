# SPDX-License-Identifier: Apache-2.0
# A stand-in for apache/airflow where no image registry is reachable: the same user, paths, environment and entry point
# conventions, as far as ../../Dockerfile and ../../docker-compose.yaml rely on them.
# https://github.com/apache/airflow/blob/main/Dockerfile
ARG DEBIAN_IMAGE
FROM ${DEBIAN_IMAGE}
ARG PIP_INDEX_URL
# Behind a proxy of one's own the certificates are those of the machine, which are in the image already.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ENV LANG=C.UTF-8 AIRFLOW_HOME=/opt/airflow VIRTUAL_ENV=/home/airflow/.local PATH=/home/airflow/.local/bin:$PATH \
    AIRFLOW__CORE__LOAD_EXAMPLES=false DUMB_INIT_SETSID=1
RUN useradd --uid 50000 --gid 0 --create-home --home-dir /home/airflow --shell /bin/bash airflow \
    && mkdir -p /opt/airflow/dags /opt/airflow/logs \
    && chown -R airflow:0 /opt/airflow /home/airflow && chmod -R g+rw /opt/airflow && chmod g=u /etc/passwd
COPY tests/compose/airflow-entrypoint /entrypoint
USER 50000
WORKDIR /opt/airflow
COPY requirements.txt /tmp/requirements.txt
ARG UV_VERSION
RUN python3 -m venv /home/airflow/.local \
    && pip install --no-cache-dir "uv==${UV_VERSION}" \
    && uv pip install --no-cache --compile-bytecode --require-hashes --requirement /tmp/requirements.txt
ENTRYPOINT ["/usr/bin/dumb-init", "--", "/entrypoint"]

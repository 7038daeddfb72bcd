# SPDX-License-Identifier: Apache-2.0
# A stand-in for the official postgres image: its user, data directory and variables.
ARG DEBIAN_IMAGE
FROM ${DEBIAN_IMAGE}
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/* \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ \
    && mkdir -p /var/lib/postgresql/data /var/run/postgresql \
    && chown -R postgres:postgres /var/lib/postgresql /var/run/postgresql && chmod 3777 /var/run/postgresql
ENV LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data
COPY tests/compose/postgres-entrypoint /usr/local/bin/docker-entrypoint.sh
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A Docker engine and stand-in images, for scripts/test-compose. Sourced after _lib.sh, never run. Everything is below $WORK.

STANDIN=airflow-tpu-standin
# The Debian that the stand-ins are made of; it has to bring a Python from 3.11 to 3.13.
SUITE=${SUITE:-bookworm}

# Sets COMPOSE to the compose that is installed: the plugin of Docker, or the older program of its own.
find_compose() {
    if docker compose version >/dev/null 2>&1; then
        COMPOSE=(docker compose)
    elif docker-compose version >/dev/null 2>&1; then
        COMPOSE=(docker-compose)
    else
        return 1
    fi
}

ensure_docker() {
    if ! { command -v docker >/dev/null && find_compose; }; then
        may_install || die "docker and docker compose are needed." "Debian:  sudo apt-get install docker.io docker-compose"
        apt_install docker.io docker-compose iptables || die "apt-get install docker.io docker-compose failed."
        find_compose || die "docker compose is installed, but does not run." "Look why:  docker compose version"
    fi
    docker info >/dev/null 2>&1 || start_engine
    step "$(docker version --format 'Docker engine {{.Server.Version}}'), ${COMPOSE[*]} $("${COMPOSE[@]}" version --short)"
}

# An engine of our own, where none runs and root may start one; it ends with the test, and its images with it.
start_engine() {
    local tries
    { [ "$(id -u)" = 0 ] && command -v dockerd >/dev/null; } ||
        die "No Docker engine answers." "Start one:  sudo systemctl start docker" "or run this script as root, which starts one of its own."
    step "Starting a Docker engine (log: $WORK/dockerd.log)"
    dockerd --data-root "$WORK/docker" --exec-root "$WORK/exec" --pidfile "$WORK/dockerd.pid" \
        --host "unix://$WORK/docker.sock" >"$WORK/dockerd.log" 2>&1 &
    ENGINE=$!
    export DOCKER_HOST=unix://$WORK/docker.sock
    for ((tries = 0; tries < 60; tries++)); do
        ! docker info >/dev/null 2>&1 || return 0
        kill -0 "$ENGINE" 2>/dev/null || break
        sleep 1
    done
    die "The Docker engine did not start; the end of its log:" "$(tail -n 15 "$WORK/dockerd.log")"
}

stop_engine() {
    [ -n "${ENGINE:-}" ] || return 0
    kill "$ENGINE"
    wait "$ENGINE" || true
}

# No image registry is needed: Debian comes from its own archive, Airflow from the package index.
build_standins() {
    local name
    docker image inspect "$STANDIN/debian" >/dev/null 2>&1 || import_debian
    for name in postgres redis airflow; do
        step "Building the stand-in for the image of $name"
        tar -c requirements.txt tests/compose | docker build --quiet --tag "$STANDIN/$name" --file "tests/compose/$name.Dockerfile" \
            --build-arg DEBIAN_IMAGE="$STANDIN/debian" --build-arg UV_VERSION="$UV_VERSION" ${PIP_INDEX_URL:+--build-arg PIP_INDEX_URL} - \
            >"$WORK/$name.log" 2>&1 || die "docker build failed; the end of its log:" "$(tail -n 15 "$WORK/$name.log")"
    done
}

import_debian() {
    command -v debootstrap >/dev/null || { may_install && apt_install debootstrap; } ||
        die "debootstrap is needed." "Debian:  sudo apt-get install debootstrap"
    step "Making a Debian ($SUITE) for the stand-in images (two minutes)"
    debootstrap --variant=minbase --include=ca-certificates,curl,dumb-init,python3,python3-venv \
        "$SUITE" "$WORK/debian" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$WORK/debootstrap.log" 2>&1 ||
        die "debootstrap failed; the end of its log:" "$(tail -n 15 "$WORK/debootstrap.log")"
    # Behind a proxy with a certificate of its own, the containers must trust what this machine trusts.
    cp /etc/ssl/certs/ca-certificates.crt "$WORK/debian/etc/ssl/certs/ca-certificates.crt"
    tar -C "$WORK/debian" -c --exclude=./var/cache/apt . | docker import - "$STANDIN/debian" >/dev/null
    rm -rf "$WORK/debian"
}

# Only where the engine is the machine's: one of our own takes all of its images with it.
remove_images() {
    [ -z "${ENGINE:-}" ] || return 0
    docker image rm --force "airflow-tpu:$1" "airflow-tpu-localcloud:$1" >/dev/null 2>&1 || true
}

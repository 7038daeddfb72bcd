# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is used by the scripts that source this file
# Shared by the scripts beside it; each of them has already changed to the project's root.
# Sourced, never run.

ROOT=$PWD
VENV=${VENV:-$ROOT/.venv}
UV_VERSION=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' requirements-dev.txt)

# --- talking to people -------------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }

step() { printf '==> %s\n' "$*"; }

# die WHAT [WHAT TO DO ...]: prints an error to standard error, one argument a line, and ends the script.
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
    exit 1
}

# --- finding tools -----------------------------------------------------------------------------------------------

# Sets UV to a uv that runs, or fails.
find_uv() {
    local candidate
    for candidate in "$VENV/bin/uv" uv; do
        # A version manager may leave a stub on PATH that only says "not installed": run it to know.
        if "$candidate" --version >/dev/null 2>&1; then
            UV=$candidate
            return 0
        fi
    done
    return 1
}

python_is_supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

# Sets PYTHON to an interpreter from 3.11 to 3.13, or ends with what was found and how to get one.
# An interpreter that the caller names in PYTHON is taken or refused, never replaced by another.
find_python() {
    local candidate seen=""
    for candidate in "${PYTHON:-python3}" ${PYTHON:-python3.12 python3.11 python3.13}; do
        if python_is_supported "$candidate"; then
            PYTHON=$("$candidate" -c 'import sys; print(sys.executable)')
            return 0
        fi
        # A version manager's stub explains itself on stderr; that explanation is of no use here.
        [[ $seen == *" $candidate "* ]] || seen+=" $candidate ($("$candidate" --version 2>/dev/null || echo "does not run"))"
    done
    die "Python 3.11, 3.12 or 3.13 is needed; looked for:$seen." \
        "Older ones cannot run Airflow 3.3 with its Google provider, for newer ones TensorFlow has no release." \
        "Debian 12 or later, Ubuntu 24.04 or later:  sudo apt-get install python3 python3-venv" \
        "Elsewhere: https://www.python.org/downloads/  or  uv python install 3.12" \
        "An interpreter in another place is named by:  PYTHON=/path/to/python3.12 $0"
}

# --- Debian packages ---------------------------------------------------------------------------------------------

have_sshd() { [ -x /usr/sbin/sshd ] || command -v sshd >/dev/null; }

have_nss_wrapper() { compgen -G '/usr/lib/*/libnss_wrapper.so*' >/dev/null || compgen -G '/usr/lib*/libnss_wrapper.so*' >/dev/null; }

# Prints the Debian packages, one a line, that are missing for TPU VMs of the local cloud to be as real as they can be.
missing_packages() {
    have_sshd || echo openssh-server
    command -v bwrap >/dev/null || echo bubblewrap
    have_nss_wrapper || echo libnss-wrapper
}

have_postgresql() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

# Prints those that are missing for the tests that run a whole Airflow, of processes, as it is run in production.
missing_servers() {
    have_postgresql || echo postgresql
    command -v redis-server >/dev/null || echo redis-server
}

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    step "apt-get install $*"
    # Daemons that a package would start (sshd, PostgreSQL, Redis) have no business on this machine: we start our own.
    if ! { DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y --no-install-recommends "$@" ||
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y --no-install-recommends "$@"; }; } >/dev/null; then
        return 1
    fi
}

# Installs the packages that a function prints where that is allowed (root, apt-get), else says what does not work without.
install_or_say() {
    local -a missing
    mapfile -t missing < <("$1")
    [ ${#missing[@]} -gt 0 ] || return 0
    if may_install && apt_install "${missing[@]}"; then
        return 0
    fi
    say "note: missing ${missing[*]}: $2"
    say "      Install with:  sudo apt-get install ${missing[*]}"
}

ensure_servers() { install_or_say missing_servers "the tests in tests/airflow will fail."; }

ensure_packages() {
    install_or_say missing_packages "TPU VMs of the local cloud will be less real (no own sshd or no own process space)."
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The local cloud, for scripts/demo and scripts/up. Sourced after _lib.sh and _airflow.sh, never run.

CLOUD_STATE=${CLOUD_STATE:-$ROOT/.localcloud}
# The grant of the local cloud, the bucket that it names, and where that lies.
LOCAL_GRANT=local.yaml
DEMO_BUCKET=trc-local
DEMO_BUCKET_LOCATION=US-CENTRAL1

localcloud() {
    local command=$1
    shift
    "$VENV/bin/python" -m localcloud "$command" --state-dir "$CLOUD_STATE" "$@"
}

# Starts the local cloud and points Airflow's two connections at it.
cloud_up() {
    step "Starting the local cloud (TPU API, TPU VMs with SSH, Cloud Storage)"
    mkdir -p "$CLOUD_STATE"
    localcloud up --detach --bucket "$DEMO_BUCKET=$DEMO_BUCKET_LOCATION" >"$CLOUD_STATE/up.log" 2>&1 ||
        die "The local cloud did not start; the end of $CLOUD_STATE/up.log:" "$(tail -n 15 "$CLOUD_STATE/up.log")" \
            "If an earlier one is still up: scripts/down"
    "$VENV/bin/python" scripts/connections.py "$CLOUD_STATE/endpoints.json" "$AIRFLOW_HOME"
    # shellcheck disable=SC1091  # written by the line above
    . "$AIRFLOW_HOME/connections.env"
    export AIRFLOW__AIRFLOW_TPU__GRANT=$LOCAL_GRANT
}

# Ends the local cloud; fails, naming them, if a process of it is left.
cloud_down() {
    [ -f "$CLOUD_STATE/endpoints.json" ] || return 0
    localcloud down
}

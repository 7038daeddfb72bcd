# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Airflow on this machine, for scripts/demo and scripts/up: everything it writes is in .airflow, and it listens on loopback only.
# Sourced after _lib.sh, never run.

export AIRFLOW_HOME=${AIRFLOW_STATE:-$ROOT/.airflow}
AIRFLOW_PORT=${AIRFLOW_PORT:-8080}

# A secret that all of Airflow's processes share; made once, readable by this user only.
secret() {
    local file=$AIRFLOW_HOME/$1
    [ -s "$file" ] || (umask 077 && "$VENV/bin/python" -c "$2" >"$file")
    cat "$file"
}

# Settings of another Airflow on this machine must not leak into this one.
forget_other_airflows() {
    local name
    for name in $(compgen -e | grep -E '^AIRFLOW_(_|CONN_|VAR_)' || true); do unset "$name"; done
}

airflow_environment() {
    (umask 077 && mkdir -p "$AIRFLOW_HOME/logs")
    forget_other_airflows

    export AIRFLOW__CORE__DAGS_FOLDER=$ROOT/dags
    export AIRFLOW__CORE__PLUGINS_FOLDER=$ROOT/plugins
    export AIRFLOW__CORE__LOAD_EXAMPLES=False
    export AIRFLOW__CORE__EXECUTOR=LocalExecutor
    export AIRFLOW__CORE__PARALLELISM=4
    export AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION=${DAGS_PAUSED:-True}
    # On two busy cores the first parse of a DAG file takes longer than the 30 s that Airflow allows.
    export AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT=120
    export AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=sqlite:///$AIRFLOW_HOME/airflow.db

    # Everyone is an admin, which is why only this machine may connect.
    export AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS=True
    export AIRFLOW__API__HOST=127.0.0.1
    export AIRFLOW__API__PORT=$AIRFLOW_PORT
    export AIRFLOW__API__WORKERS=1
    # Seconds until an open page asks again; with Airflow's default of 3 the log page would lag behind the log.
    export AIRFLOW__API__AUTO_REFRESH_INTERVAL=1
    # The log has commands to copy, which are longer than a line.
    export AIRFLOW__API__DEFAULT_WRAP=True
    export AIRFLOW__API__BASE_URL=http://localhost:$AIRFLOW_PORT
    export AIRFLOW__CORE__EXECUTION_API_SERVER_URL=http://127.0.0.1:$AIRFLOW_PORT/execution/

    AIRFLOW__API_AUTH__JWT_SECRET=$(secret jwt_secret 'import secrets; print(secrets.token_urlsafe(48))')
    AIRFLOW__API__SECRET_KEY=$(secret session_secret 'import secrets; print(secrets.token_urlsafe(48))')
    AIRFLOW__CORE__FERNET_KEY=$(secret fernet_key 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())')
    export AIRFLOW__API_AUTH__JWT_SECRET AIRFLOW__API__SECRET_KEY AIRFLOW__CORE__FERNET_KEY

    # A new or changed DAG shows within seconds, a killed task is noticed within half a minute.
    export AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL=10
    export AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL=10
    export AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT=30

    # Calls to this machine never go through a company's proxy.
    export no_proxy=localhost,127.0.0.1${no_proxy:+,$no_proxy} NO_PROXY=localhost,127.0.0.1${NO_PROXY:+,$NO_PROXY}
}

# Creates or upgrades the database; a stamp with Airflow's version makes the second run free.
migrate_database() {
    local version stamp=$AIRFLOW_HOME/.migrated
    version=$(sed -n 's/^apache-airflow==\([^ ]*\).*/\1/p' requirements-dev.txt)
    if [ -f "$AIRFLOW_HOME/airflow.db" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$version" ]; then
        return 0
    fi
    step "Preparing Airflow $version's database (about 10 s)"
    "$VENV/bin/airflow" db migrate >"$AIRFLOW_HOME/logs/migrate.log" 2>&1 ||
        die "airflow db migrate failed; the end of $AIRFLOW_HOME/logs/migrate.log:" "$(tail -n 15 "$AIRFLOW_HOME/logs/migrate.log")" \
            "If the database is from another version and holds nothing you need: rm -r $AIRFLOW_HOME"
    echo "$version" >"$stamp"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# How scripts/deploy-composer talks to Google: each command is shown, and what it answers is explained.
# Sourced, never run.

ANSWER=$(mktemp)
trap 'rm -f "$ANSWER"' EXIT
AGAIN="Then run the same command again: what is done already is not done twice."

# Print a command as it could be typed.
show() {
    local word line=+
    for word; do if [[ $word =~ ^[A-Za-z0-9_@%+=:,./-]+$ ]]; then line+=" $word"; else line+=" ${word@Q}"; fi; done
    printf '%s\n' "$line" >&2
}

# Show a command, and run it unless this is a dry run.
run() {
    show "$@"
    [ -n "$DRY_RUN" ] || "$@"
}

# The same for a command that asks Google: its standard error is shown as it comes, and explained if the command fails.
google() {
    show "$@"
    [ -z "$DRY_RUN" ] || return 0
    local status=0
    { "$@" 2>&1 1>&3 3>&- | tee "$ANSWER" >&2; } 3>&1 || status=$?
    [ "$status" -eq 0 ] || explain
}

# composer VERB ARGUMENTS...: what follows "--" belongs to Airflow's own command line.
composer() {
    google gcloud composer environments "$1" "$ENVIRONMENT" --project "$PROJECT" --location "$LOCATION" "${@:2}"
}

# Say what the answer in $ANSWER means. Returns if it means that there is nothing to do.
explain() {
    local text
    text=$(cat "$ANSWER")
    case $text in
        *"No change in configuration"* | *"already exists"* | *ALREADY_EXISTS*)
            say "Nothing to do here: it is so already."
            return 0
            ;;
        *RESOURCE_EXHAUSTED* | *[Qq]"uota exceeded"* | *"uota limit"*)
            die "a quota of the project $PROJECT is used up (Google's answer is above)." \
                "Wait if it counts calls a minute; else ask for more on the page IAM and Admin, Quotas of the console." "$AGAIN"
            ;;
        *PERMISSION_DENIED* | *"does not have permission"* | *"403 Forbidden"* | *"HTTPError 403"*)
            die "the account of gcloud may not do this (Google's answer is above)." \
                "It needs roles/composer.environmentAndStorageObjectAdmin on $PROJECT and roles/artifactregistry.writer on the" \
                "repository $REPOSITORY: docs/composer.md, Rights." "$AGAIN"
            ;;
        *"Failed to install"*[Pp]"ackages"*)
            die "Composer could not install the packages; the environment continues with those it had." \
                "The log that is named above says which two do not fit." "$AGAIN"
            ;;
        *NOT_FOUND* | *"404 Not Found"* | *"HTTPError 404"*)
            die "something that is named above is not there: the environment $ENVIRONMENT in $LOCATION, or the repository $REPOSITORY." \
                "gcloud composer environments list --locations $LOCATION --project $PROJECT   docs/composer.md, Prepare once" "$AGAIN"
            ;;
        *FAILED_PRECONDITION* | *"operation in progress"*)
            die "the environment cannot be changed now (Google's answer is above): one change at a time is possible." \
                "gcloud composer operations list --locations $LOCATION --project $PROJECT" "$AGAIN"
            ;;
        *) die "the last command failed (its answer is above)." "$AGAIN" ;;
    esac
}

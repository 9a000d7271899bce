# Completions of dlock for bash. The words of the command that is run are completed if the package bash-completion is loaded.

_dlock() {
    local cur cword kind lead line raw=0 k n joined
    local -a words answer
    if declare -F _get_comp_words_by_ref > /dev/null; then
        _get_comp_words_by_ref -n =: cur words cword
    else
        words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]}
    fi
    mapfile -t answer < <(dlock __complete "${words[@]:1:cword}" 2> /dev/null)
    kind=${answer[0]}
    COMPREPLY=()
    case $kind in
        'command '*)
            n=${kind#command }
            if declare -F _command_offset > /dev/null; then
                # bash has its own words, split at = and : as well.
                for ((k = 0; k < n; k++)); do
                    joined=${COMP_WORDS[raw++]}
                    while [[ $joined != "${words[k]}" && $raw -lt ${#COMP_WORDS[@]} ]]; do
                        joined+=${COMP_WORDS[raw++]}
                    done
                done
                _command_offset "$raw"
            elif ((cword == n)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else
                compopt -o filenames 2> /dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            ;;
        files | directories)
            compopt -o filenames 2> /dev/null
            lead=
            [[ $cur == --*=* ]] && lead=${cur%%=*}=
            [[ $kind == files ]] && k=-f || k=-d
            mapfile -t COMPREPLY < <(compgen "$k" -- "${cur#"$lead"}")
            ;;
        words)
            # bash replaces its own last word, which begins behind the last = or :.
            lead=${cur%"${COMP_WORDS[COMP_CWORD]}"}
            [[ ${COMP_WORDS[COMP_CWORD]} == [=:] ]] && lead=$cur
            for line in "${answer[@]:1}"; do
                line=${line%%$'\t'*}
                printf -v line %q "$line"
                COMPREPLY+=("${line#"$lead"}")
            done
            ;;
    esac
}

complete -F _dlock dlock

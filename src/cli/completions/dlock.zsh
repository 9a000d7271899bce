#compdef dlock
# Completions of dlock for zsh.

_dlock() {
    local -a answer described typed
    local line
    local -i n
    # Also where the last one is empty.
    typed=("${(@Q)words[2,CURRENT]}")
    answer=("${(@f)$(_call_program candidates dlock __complete "${(@qq)typed}" 2> /dev/null)}")
    case $answer[1] in
        ('command '*)
            n=${answer[1]#command }
            shift n words
            ((CURRENT -= n))
            _normal
            ;;
        (files)
            [[ $PREFIX == --*=* ]] && compset -P '--*='
            _files
            ;;
        (directories)
            [[ $PREFIX == --*=* ]] && compset -P '--*='
            _files -/
            ;;
        (words)
            for line in $answer[2,-1]; do
                if [[ $line == *$'\t'* ]]; then
                    described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
                else
                    described+=("${line//:/\\:}")
                fi
            done
            _describe candidate described
            ;;
    esac
}

if [[ $funcstack[1] == _dlock ]]; then
    _dlock "$@"
else
    compdef _dlock dlock
fi

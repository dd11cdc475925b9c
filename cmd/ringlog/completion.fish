function __ringlog
    set -l found (ringlog __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c ringlog -f -a '(__ringlog)'

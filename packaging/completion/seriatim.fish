# fish completion for seriatim. It asks the tool itself, so that it knows every subcommand and option that --help does.

# The subcommands and options of `seriatim WORDS... --help`, one a line.
function __seriatim_candidates
    $argv --help 2>/dev/null | awk '
        /^[A-Z].*:$/ { section = $0; next }
        section == "Subcommands:" && /^  [a-z]/ { print $1 }
        section == "Options:" && /^  -/ {
          n = split($1, names, ",")
          for (i = 1; i <= n; ++i) if (names[i] ~ /^--/) print names[i]
        }'
end

function __seriatim_complete
    set -l tokens (commandline -opc)
    set -l so_far $tokens[1]
    for word in $tokens[2..-1] # the subcommands so far
        string match -q -- '-*' $word; and break
        __seriatim_candidates $so_far | grep -qxF -e $word; or break
        set -a so_far $word
    end
    __seriatim_candidates $so_far
end

complete -c seriatim -a '(__seriatim_complete)'

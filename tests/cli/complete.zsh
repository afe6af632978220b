# complete.zsh PROGRAM LINE...   What zsh offers when Tab is pressed at the end of each LINE: "= LINE", then a word a line.
# It runs a zsh of its own on a pseudo terminal, in which compadd also prints what it shows; with -O, -A or -D it
# only fills variables of the function that calls it.
zmodload zsh/zpty
TERM=dumb zpty shell zsh -f -i
zpty -w shell "path=(${(qq)1:h} \$path); autoload -Uz compinit; compinit -u -D; source <(distbelief completion zsh)"
zpty -w shell '
compadd() {
  local -a found
  if [[ ${@[1,(i)(-|--)]} == *-[OAD]* ]]; then builtin compadd "$@"; return; fi
  builtin compadd -A found "$@"
  print -r
  print -rl -- ": "${^found}
  builtin compadd "$@"
}
finish() { BUFFER=; print -r; print -r -- "<end>"; }
zle -N finish
bindkey "^T" finish
bindkey "^I" complete-word
PROMPT=
LISTMAX=10000
print "<be""gin>"
'
zpty -r shell ignored '*<begin>*'
for line in "${@[2,-1]}"; do
  zpty -w -n shell "$line"$'\t\x14'
  zpty -r shell text '*<end>*'
  print -r -- "= $line"
  offered=(${${(M)${(f)${text//$'\r'}}:#: *}#: })
  (( $#offered )) && print -rl -- $offered
done
zpty -d shell

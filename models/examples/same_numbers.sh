#!/bin/bash
# Whether two texts agree word by word, and numbers up to 0.002. Prints the differences; exits with 1 if there are any.
#
#     same_numbers.sh TEXT TEXT
paste -d '\n' <(tr -s ' ,:\n' '\n' <<< "$1") <(tr -s ' ,:\n' '\n' <<< "$2") | awk '
  NR % 2 == 1 { word = $0; next }
  word == $0 { next }
  word ~ /^[0-9.]+$/ && $0 ~ /^[0-9.]+$/ && word - $0 < 0.002 && $0 - word < 0.002 { next }
  { print "\"" word "\" and \"" $0 "\""; differs = 1 }
  END { exit differs }'

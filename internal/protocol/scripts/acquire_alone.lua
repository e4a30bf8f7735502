-- acquire_alone: acquire_free for a writer, and for the first of those who may share.
if free then
  local kind, mode, weight, lease = string.match(ARGV[1], '^[^ ]+ ([^ ]+) ([^ ]) (%d+) (%d+) ')
  if mode ~= 'p' or tonumber(weight) <= tonumber(string.sub(kind, 2)) then
    return brief(hold({ raw = ARGV[1], kind = kind, mode = mode }, lease, true))
  end
end

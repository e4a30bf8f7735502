-- acquire_alone: acquire_free for a writer, for the first of those who may share, and for a mutex that needs a number over
-- its fence: the fence has a lower one by now, so nothing may stop it before that is made good.
if free and (ARGV[3] ~= '' or call('ZCARD', shared) == 0) then
  local kind, mode, weight, lease = string.match(ARGV[1], '^[^ ]+ ([^ ]+) ([^ ]) (%d+) (%d+) ')
  if mode ~= 'p' or tonumber(weight) <= tonumber(string.sub(kind, 2)) then
    return brief(hold({ raw = ARGV[1], kind = kind, mode = mode }, lease, true))
  end
end

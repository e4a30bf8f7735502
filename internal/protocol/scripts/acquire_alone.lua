-- acquire_alone: acquire_free for the first of those who may share.
if kind and mode ~= 'x' and call('ZCARD', shared) == 0 and (mode ~= 'p' or tonumber(weight) <= tonumber(string.sub(kind, 2))) then
  local value = hold({ raw = ARGV[2], kind = kind, mode = mode }, lease, true)
  return value
end

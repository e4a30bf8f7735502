-- acquire_free: how acquire begins: what most requests find, before anything else is even defined. Nothing
-- is held, nobody waits. Arguments and replies: see acquire.lua.
local latest = tonumber(ARGV[4])
if latest > 0 and now > latest then
  return { 'late', now }
end
held = call('GET', lock)
if not held and call('ZCARD', queue) == 0 then
  local kind, mode, weight, lease = string.match(ARGV[2], '^[^ ]+ ([^ ]+) ([^ ]) (%d+) (%d+) ')
  local alone = kind == 'm' or call('ZCARD', shared) == 0
  if alone and (mode ~= 'p' or tonumber(weight) <= tonumber(string.sub(kind, 2))) then
    local value = hold({ raw = ARGV[2], kind = kind, mode = mode }, lease, true)
    return value
  end
end

-- release_last: how release begins: what most requests find, before anything else is even defined. The only
-- hold is ours, nobody waits, and nothing is to be queued. Arguments and replies: see release.lua.
local given = ARGV[1]
held = call('GET', lock)
if held and not ARGV[2] and call('EXISTS', queue) == 0 then
  if string.sub(held, 1, #given) == given then
    call('DEL', lock)
    return 'released'
  end
  if string.sub(held, 1, 11) == 'vs1 shared ' and call('ZCARD', shared) == 1 and call('ZSCORE', shared, given) then
    call('DEL', lock, shared)
    return 'released'
  end
end

-- release_last: how release begins: what most requests find, before anything else is even defined. The only
-- hold is ours, nobody waits, and nothing is to be queued. Arguments and replies: see release.lua.
held = call('GET', lock)
if held and not ARGV[3] and call('ZCARD', queue) == 0 then -- a queue of another type stops the script here
  if held == ARGV[2] then
    call('DEL', lock)
    return 'released'
  end
  if string.sub(held, 1, 11) == 'vs1 shared ' and call('ZCARD', shared) == 1 and call('ZSCORE', shared, ARGV[2]) then
    call('DEL', lock, shared)
    return 'released'
  end
end

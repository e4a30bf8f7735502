-- quorum_drop: gives the key back, if it is the caller's, and tells whoever listens for that. Repeatable.
--
-- ARGV[1] value   the same on all servers
-- ARGV[2] number  of the token, to which the fence is raised; 0 where there was none
--
-- { 'released', now, 0, 0, 0, 0, waiting }
-- { 'lost', now, 0, 0, 0, 0, waiting, holder }  was not ours any more
if held ~= ARGV[1] then
  return not_ours()
end
call('DEL', lock)
raise(ARGV[2])
redis.pcall('PUBLISH', 'valkeysync:quorum:' .. lock, 'free') -- where that is not allowed, events and timers do
return { 'released', now, 0, 0, 0, 0, waiting }

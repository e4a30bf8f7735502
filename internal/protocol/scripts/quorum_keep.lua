-- quorum_keep: sets the full lease anew, for the owner only, and raises the fence to the token's number: from then
-- on nobody who gets the key here is given a lower one. Where the key is gone, and the caller has seen that a
-- majority still holds, sets it again. Repeatable.
--
-- ARGV[1] value   the same on all servers
-- ARGV[2] lease   ms
-- ARGV[3] number  of the token
-- ARGV[4] latest  server time (ms) after which the key is not set again; '' : never
--
-- { 'held', now, 0, 0, lease, 0, waiting }
-- { 'lost', now, 0, 0, 0, 0, waiting, holder }
-- { 'late', now }  came too late to set it again
if held == ARGV[1] then
  call('PEXPIRE', lock, ARGV[2]) -- a first write that takes no memory lets the others pass when it is out
elseif held or ARGV[4] == '' then
  return not_ours()
elseif now > tonumber(ARGV[4]) then
  return { 'late', now }
else
  call('SET', lock, ARGV[1], 'PX', ARGV[2])
end
raise(ARGV[3])
return { 'held', now, 0, 0, tonumber(ARGV[2]), 0, waiting }

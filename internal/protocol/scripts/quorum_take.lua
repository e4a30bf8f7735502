-- quorum_take: takes the key if it is free. Repeatable: the same value gets the same answer, and a fresh number.
--
-- ARGV[2] value   the same on all servers
-- ARGV[3] lease   ms
-- ARGV[4] latest  server time (ms) after which the request is refused; 0 for none
--
-- { 'held', now, number, 0, remaining, 0, waiting }
-- { 'busy', now, 0, 0, remaining, 0, waiting, holder }
-- { 'late', now }  came after its latest time, nothing done
if ARGV[4] ~= '0' and now > tonumber(ARGV[4]) then
  return { 'late', now }
end
local left = tonumber(ARGV[3])
if held then
  left = call('PTTL', lock)
  if held ~= ARGV[2] then
    return { 'busy', now, 0, 0, left, 0, waiting, string.sub(held, 1, 512) }
  end
end
local n = number()
if not held then
  call('SET', lock, ARGV[2], 'PX', ARGV[3])
end
return { 'held', now, tonumber(n), 0, left, 0, waiting }

-- quorum_take: takes the key if it is free. Repeatable: the same value gets the same answer, and a fresh number.
--
-- ARGV[1] value   the same on all servers
-- ARGV[2] lease   ms
-- ARGV[3] latest  server time (ms) after which the request is refused; 0 for none
--
-- { 'held', now, number, 0, remaining, 0, waiting }
-- { 'busy', now, 0, 0, remaining, 0, waiting, holder }
-- { 'late', now }  came after its latest time, nothing done
if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then
  return { 'late', now }
end
local left = tonumber(ARGV[2])
if held then
  left = call('PTTL', lock)
  if held ~= ARGV[1] then
    return { 'busy', now, 0, 0, left, 0, waiting, string.sub(held, 1, 512) }
  end
end
local n = number()
if not held then
  call('SET', lock, ARGV[1], 'PX', ARGV[2])
end
return { 'held', now, tonumber(n), 0, left, 0, waiting }

-- acquire_all: takes several mutexes, all of them or none: where each is free and nobody waits for it. It
-- stands behind number. Not repeatable: whoever gets no answer has every attempt leave.
--
-- KEYS four of each lock, one lock after the other
--
-- ARGV[1] entries  the attempts, in the same order, a line each
-- ARGV[2] latest   server time (ms) after which the request is refused; 0 for none
--
-- { as acquire says of each hold, in the same order }: the attempts hold the locks, with their full leases
-- { 'busy', now }  not all are free, nothing done
-- { 'late', now }  came after its latest time, nothing done
local now = tonumber(now_ms)
if ARGV[2] ~= '0' and now > tonumber(ARGV[2]) then
  return { 'late', now }
end
for i = 1, #KEYS, 4 do
  if call('EXISTS', KEYS[i], KEYS[i + 1], KEYS[i + 2]) > 0 then
    return { 'busy', now }
  end
end
local holds = {}
local i = 1
for entry in string.gmatch(ARGV[1], '[^\n]+') do
  fence, last = KEYS[i + 3], nil
  local n = number()
  call('SET', KEYS[i], 'vs1 ' .. n .. ' ' .. now_ms .. ' ' .. entry, 'PX', string.match(entry, '^[^ ]+ [^ ]+ [^ ] %d+ (%d+) '))
  holds[#holds + 1] = brief(n)
  i = i + 4
end
return holds

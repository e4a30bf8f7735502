-- status: how a lock stands, for people. Writes nothing. Stands behind the prelude alone.
--
-- ARGV[1] most  how many waiting entries to list
--
-- { now, lock value or '', its PTTL, last number, { hold, end ms, … }, { entry, place, … }, waiting }
return {
  now,
  holder(),
  call('PTTL', lock),
  call('GET', fence) or '0',
  call('ZRANGEBYSCORE', shared, now_ms, '+inf', 'WITHSCORES'),
  call('ZRANGE', queue, 0, ARGV[1] - 1, 'WITHSCORES'),
  call('ZCARD', queue),
}

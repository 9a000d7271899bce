-- Further arguments: record, mode, ttl, who comes, whether it takes the place of older ones that say so too ('1') or
-- only leaves its own to newer ones ('2').
local about, mode, ttl, by, newest = ARGV[more], ARGV[more + 1], tonumber(ARGV[more + 2]), ARGV[more + 3], ARGV[more + 4]

-- The usual case, ahead of all that it does not need: nobody is there.
local free = true
for n = 1, names do
  if redis.call('EXISTS', lock_key(n), queue_key(n), claim_key(n)) > 0 then free = false end
end
if free then
  local rows, stamp = {}, string.format('%.0f', now)
  local slot = string.sub(mode, 1, 6) == 'slots:' and '1'
  for n = 1, names do
    local last = tonumber(redis.call('HGET', counters_key(n), 'fence') or 0)
    local token = string.format('%.0f', math.max(last + 1, now))
    local value = mode == 'exclusive' and id or mark .. mode
    redis.call('HSET', counters_key(n), 'fence', token)
    redis.call('SET', lock_key(n), value, 'PX', ttl)
    redis.call('HSET', claim_key(n), 'mode', mode, 'about', about, 'since', stamp, 'newest', newest, 'token', token,
      'held', stamp)
    if slot then redis.call('HSET', claim_key(n), 'slot', slot) end
    redis.call('PEXPIRE', claim_key(n), ttl)
    redis.call('ZADD', queue_key(n), 1, id)
    redis.call('PEXPIRE', queue_key(n), ttl + 86400000)
    rows[n] = { token, slot, false, false, false, false, value, 0, ttl }
  end
  return { 'in', rows }
end

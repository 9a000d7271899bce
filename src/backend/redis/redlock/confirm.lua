-- For a claim that has a majority: no later token is lower than its own, it goes before everybody who waits, and what it
-- has here is known to be a part of its hold. Further arguments, for each name: its token, its slot or nothing, and the
-- token by which it was given what it has here, or nothing.
for n = 1, names do
  local token, slot, given = ARGV[more + 3 * n - 3], ARGV[more + 3 * n - 2], ARGV[more + 3 * n - 1]
  local queue, holds, counters, key = queue_key(n), holders_key(n), counters_key(n), claim_key(n)
  -- First what a server without memory takes: then it takes the rest, and lets others in.
  redis.call('HDEL', key, 'behind')
  if tonumber(redis.call('HGET', counters, 'fence') or 0) < tonumber(token) then
    redis.call('HSET', counters, 'fence', token)
  end
  local c = redis.call('HMGET', key, 'mode', 'gone', 'token', 'slot')
  if c[1] and not c[2] then
    redis.call('HSET', key, 'fence', token)
    -- It counts no slot but that of its hold, and may have another here.
    if slot ~= '' and c[4] and c[3] == given and c[4] ~= slot then give_back(n, given, slot) end
    if redis.call('ZSCORE', queue, id) then
      redis.call('ZADD', queue, 0, id)
      if slot ~= '' then redis.call('HSET', key, 'wish', slot) end
    elseif c[3] and c[3] == given then
      redis.call('ZADD', holds, 0, id)
    end
  end
  settle(n)
end
return answer('in')

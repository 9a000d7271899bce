-- For a claim that has a majority: it goes before everybody who waits, and no later token is lower than its own.
-- Further arguments, for each name: its token, and its slot or nothing.
for n = 1, names do
  local token, slot = ARGV[more + 2 * n - 2], ARGV[more + 2 * n - 1]
  local line, holds, counters = KEYS[5 * n - 3], KEYS[5 * n - 2], KEYS[5 * n - 1]
  if tonumber(redis.call('HGET', counters, 'fence') or 0) < tonumber(token) then
    redis.call('HSET', counters, 'fence', token)
  end
  if redis.call('ZSCORE', line, id) then redis.call('ZADD', line, 0, id) end
  settle(n)
  if redis.call('ZSCORE', holds, id) then
    redis.call('ZADD', holds, 0, id)
    redis.call('HSET', KEYS[5 * n], 'token', token)
    redis.call('HDEL', KEYS[5 * n], 'behind')
    if slot ~= '' then
      local _, _, _, used = holders(n, value_of(n))
      if not used[slot] then
        redis.call('HSET', KEYS[5 * n], 'slot', slot)
      elseif used[slot] ~= id then
        redis.call('HDEL', KEYS[5 * n], 'slot')
      end
    end
    settle(n)
  end
end
return answer('in')

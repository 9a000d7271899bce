-- Makes way. Further arguments, for each name: nothing, or 'y' and the token of a grant that is given back, or 's'
-- and the slot that the claim wants instead of the one that it has.
for n = 1, names do
  local what, value = string.sub(ARGV[more + n - 1], 1, 1), string.sub(ARGV[more + n - 1], 2)
  local line, holds = KEYS[5 * n - 3], KEYS[5 * n - 2]
  local score = redis.call('ZSCORE', holds, id)
  if what == 'y' and score and redis.call('HGET', KEYS[5 * n], 'token') == value then
    redis.call('ZREM', holds, id)
    redis.call('ZADD', line, score, id)
    redis.call('HDEL', KEYS[5 * n], 'token', 'slot', 'held', 'behind')
    if value_of(n) == id then redis.call('DEL', KEYS[5 * n - 4]) end
  elseif what == 's' and score then
    local _, _, _, used = holders(n, value_of(n))
    if not used[value] then
      redis.call('HSET', KEYS[5 * n], 'slot', value)
    elseif used[value] ~= id then
      redis.call('HDEL', KEYS[5 * n], 'slot')
    end
  end
end
for n = 1, names do settle(n) end
return answer('in')

for n = 1, names do
  local c = redis.call('HMGET', KEYS[4 * n], 'mode', 'token', 'held')
  local value = value_of(n)
  local holds = c[1] and c[2] and value == proof(c[1], id)
  redis.call('ZREM', KEYS[4 * n - 2], id)
  if value == id then redis.call('DEL', KEYS[4 * n - 3]) end
  redis.call('DEL', KEYS[4 * n])
  if ARGV[more + 1] ~= '0' then
    redis.call('HSET', KEYS[4 * n], 'gone', 'left')
    redis.call('PEXPIRE', KEYS[4 * n], ARGV[more + 1])
  end
  if holds and ARGV[more] == '1' then redis.call('HSET', KEYS[4 * n - 1], 'success', c[3]) end
  settle(n)
end
return 1

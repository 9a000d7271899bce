-- Further arguments: whether the run was a success, and for how long to remember that the claim has left.
for n = 1, names do
  local c = redis.call('HMGET', KEYS[5 * n], 'mode', 'token', 'held')
  local value, line, holds = value_of(n), KEYS[5 * n - 3], KEYS[5 * n - 2]
  if c[3] and ARGV[more] == '1' then redis.call('HSET', KEYS[5 * n - 1], 'success', c[3]) end
  local only = redis.call('ZRANGE', holds, 0, 1)
  if c[2] and value == proof(c[1], id) and #only == 1 and only[1] == id and ARGV[more + 1] == '0'
    and redis.call('EXISTS', line) == 0 then
    -- The usual case, in as few steps as it can be: nobody else is there.
    redis.call('DEL', KEYS[5 * n - 4], holds, KEYS[5 * n])
  else
    redis.call('ZREM', line, id)
    redis.call('ZREM', holds, id)
    if value == id then redis.call('DEL', KEYS[5 * n - 4]) end
    redis.call('DEL', KEYS[5 * n])
    if ARGV[more + 1] ~= '0' then
      redis.call('HSET', KEYS[5 * n], 'gone', 'left')
      redis.call('PEXPIRE', KEYS[5 * n], ARGV[more + 1])
    end
    settle(n)
  end
end
return 1

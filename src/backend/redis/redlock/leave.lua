-- Further arguments: whether the run was a success, and for how long to keep the id out. What frees comes first: once a
-- script has written, a server without memory lets it write the rest.
for n = 1, names do
  local c = redis.call('HMGET', KEYS[5 * n], 'mode', 'token', 'held', 'gone')
  local value, line, holds = value_of(n), KEYS[5 * n - 3], KEYS[5 * n - 2]
  local only = redis.call('ZRANGE', holds, 0, 1)
  local alone = c[2] and value == proof(c[1], id) and #only == 1 and only[1] == id and ARGV[more + 1] == '0'
    and redis.call('EXISTS', line) == 0
  if alone then
    -- The usual case, in as few steps as it can be: nobody else is there.
    redis.call('DEL', KEYS[5 * n - 4], holds, KEYS[5 * n])
  else
    redis.call('ZREM', line, id)
    redis.call('ZREM', holds, id)
    if value == id then redis.call('DEL', KEYS[5 * n - 4]) end
    -- What keeps the id out stays: whoever withdraws may not be the last who says something of it.
    if not c[4] then redis.call('DEL', KEYS[5 * n]) end
    if ARGV[more + 1] ~= '0' then
      redis.call('HSET', KEYS[5 * n], 'gone', 'left')
      redis.call('PEXPIRE', KEYS[5 * n], ARGV[more + 1])
    end
  end
  if c[3] and ARGV[more] == '1' then redis.call('HSET', KEYS[5 * n - 1], 'success', c[3]) end
  if not alone then settle(n) end
end
return 1

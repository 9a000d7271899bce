-- Further arguments: whether the run was a success, and for how long to remember that the claim has left. What frees comes
-- first: once a script has written, a server without memory lets it write the rest.
for n = 1, names do
  local c = redis.call('HMGET', KEYS[4 * n], 'mode', 'token', 'held')
  local value = value_of(n)
  local holds = c[1] and c[2] and value == proof(c[1], id)
  local line = redis.call('ZRANGE', KEYS[4 * n - 2], 0, 1)
  local alone = holds and #line == 1 and line[1] == id and ARGV[more + 1] == '0'
  if alone then
    -- The usual case, in as few steps as it can be: nobody else is there.
    redis.call('DEL', KEYS[4 * n - 3], KEYS[4 * n - 2], KEYS[4 * n])
  else
    redis.call('ZREM', KEYS[4 * n - 2], id)
    if value == id then redis.call('DEL', KEYS[4 * n - 3]) end
    redis.call('DEL', KEYS[4 * n])
    if ARGV[more + 1] ~= '0' then
      redis.call('HSET', KEYS[4 * n], 'gone', 'left')
      redis.call('PEXPIRE', KEYS[4 * n], ARGV[more + 1])
    end
  end
  if holds and ARGV[more] == '1' then redis.call('HSET', KEYS[4 * n - 1], 'success', c[3]) end
  if not alone then settle(n) end
end
return 1

-- Further arguments: whether the run was a success, and for how long to keep the id out. What frees comes first: once a script has written, a server without memory lets it write the rest.
-- The usual case, ahead of all that it does not need: an exclusive hold with nobody else there.
local alone = ARGV[more + 1] == '0'
for n = 1, names do
  if alone then
    local value = redis.pcall('GET', KEYS[4 * n - 3])
    local line = redis.call('ZRANGE', KEYS[4 * n - 2], 0, 1)
    alone = value == id and #line == 1 and line[1] == id
  end
end
if alone then
  for n = 1, names do
    local held = ARGV[more] == '1' and redis.call('HGET', KEYS[4 * n], 'held')
    redis.call('DEL', KEYS[4 * n - 3], KEYS[4 * n - 2], KEYS[4 * n])
    if held then redis.call('HSET', KEYS[4 * n - 1], 'success', held) end
  end
  return 1
end

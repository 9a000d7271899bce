-- Further argument: the value.
local found = 0
for n = 1, names do
  local c = redis.call('HMGET', KEYS[5 * n], 'mode', 'gone')
  if c[1] and not c[2] then
    redis.call('HSET', KEYS[5 * n], 'label', ARGV[more])
    found = 1
  end
end
return found

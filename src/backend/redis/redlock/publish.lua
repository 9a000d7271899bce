-- Further argument: the value. Whether the claim holds, and so has it now.
local found = 0
for n = 1, names do
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'gone')
  if c[1] and c[2] and not c[3] and value_of(n) == proof(c[1], id) then
    redis.call('HSET', claim_key(n), 'label', ARGV[more])
    found = 1
  end
end
return found

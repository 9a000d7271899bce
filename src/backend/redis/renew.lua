-- Further argument: ttl. A claim that is gone in one queue is gone.
local ttl = tonumber(ARGV[more])
local alive = 1
local holds = {}
for n = 1, names do
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'gone')
  if not c[1] or c[3] or (c[2] and value_of(n) ~= proof(c[1], id)) then alive = 0 end
  holds[n] = c[2] and c[1]
end
for n = 1, names do
  if alive == 1 then
    redis.call('PEXPIRE', claim_key(n), ttl)
    keep(queue_key(n), ttl)
    if holds[n] and (holds[n] == 'exclusive' or redis.call('PTTL', lock_key(n)) < ttl) then
      redis.call('PEXPIRE', lock_key(n), ttl)
    end
  end
  if not holds[n] then settle(n) end
end
return { alive, positions() }

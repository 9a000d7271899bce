-- Further argument: ttl. A claim that is gone in one queue is gone, and one that expired is never made anew.
local ttl, alive = tonumber(ARGV[more]), true
for n = 1, names do
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'gone')
  if not c[1] or c[3] or (c[2] and value_of(n) ~= proof(c[1], id)) then alive = false end
end
for n = 1, names do
  if alive then
    redis.call('PEXPIRE', claim_key(n), ttl)
    local c = redis.call('HMGET', claim_key(n), 'mode', 'token')
    keep(c[2] and holders_key(n) or queue_key(n), ttl)
    if c[2] and (c[1] == 'exclusive' or redis.call('PTTL', lock_key(n)) < ttl) then
      redis.call('PEXPIRE', lock_key(n), ttl)
    end
  end
  settle(n)
end
return answer(alive and 'in' or 'gone')

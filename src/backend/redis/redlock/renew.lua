-- Further argument: ttl. A claim that is gone in one line is gone, and one that expired is never made anew.
local ttl, alive = tonumber(ARGV[more]), true
for n = 1, names do
  local c = redis.call('HMGET', KEYS[5 * n], 'mode', 'token', 'gone')
  if not c[1] or c[3] or (c[2] and value_of(n) ~= proof(c[1], id)) then alive = false end
end
for n = 1, names do
  if alive then
    redis.call('PEXPIRE', KEYS[5 * n], ttl)
    local c = redis.call('HMGET', KEYS[5 * n], 'mode', 'token')
    keep(KEYS[5 * n - (c[2] and 2 or 3)], ttl)
    if c[2] and (c[1] == 'exclusive' or redis.call('PTTL', KEYS[5 * n - 4]) < ttl) then
      redis.call('PEXPIRE', KEYS[5 * n - 4], ttl)
    end
  end
  settle(n)
end
return answer(alive and 'in' or 'gone')

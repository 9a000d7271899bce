-- Further argument: ttl. A claim that is gone in one line is gone.
local ttl = tonumber(ARGV[more])
local alive = 1
local holds = {}
for n = 1, names do
  local c = redis.call('HMGET', KEYS[4 * n], 'mode', 'token', 'gone')
  if not c[1] or c[3] or (c[2] and value_of(n) ~= proof(c[1], id)) then alive = 0 end
  holds[n] = c[2] and c[1]
end
for n = 1, names do
  if alive == 1 then
    redis.call('PEXPIRE', KEYS[4 * n], ttl)
    keep_line(n, ttl)
    if holds[n] and (holds[n] == 'exclusive' or redis.call('PTTL', KEYS[4 * n - 3]) < ttl) then
      redis.call('PEXPIRE', KEYS[4 * n - 3], ttl)
    end
  end
  if not holds[n] then settle(n) end
end
return { alive, standings() }

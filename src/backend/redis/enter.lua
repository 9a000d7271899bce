-- Somebody is there, or was.
local known = false
for n = 1, names do
  if redis.call('EXISTS', claim_key(n)) == 1 then known = true end
end

if not known then
  for n = 1, names do
    settle(n)
    local head = redis.call('ZRANGE', queue_key(n), 0, 0)[1]
    if head then
      local c = redis.call('HMGET', claim_of(n, head), 'mode', 'about')
      if c[1] and kind_of(c[1]) ~= kind_of(mode) then return { 'mismatch', n, c[1], c[2] } end
    end
  end
  for n = 1, names do
    if newest == '1' then
      for _, who in ipairs(redis.call('ZRANGE', queue_key(n), 0, -1)) do
        local c = redis.call('HMGET', claim_of(n, who), 'token', 'newest')
        if not c[1] and c[2] and c[2] ~= '0' then remove(n, who, 'superseded', by) end
      end
    end
    local last = redis.call('ZRANGE', queue_key(n), -1, -1, 'WITHSCORES')[2]
    redis.call('HSET', claim_key(n), 'mode', mode, 'about', about, 'since', string.format('%.0f', now), 'newest', newest)
    redis.call('PEXPIRE', claim_key(n), ttl)
    redis.call('ZADD', queue_key(n), tonumber(last or 0) + 1, id)
    keep(queue_key(n), ttl)
  end
end
for n = 1, names do settle(n) end
if known then
  -- Asked again, as when the first answer was lost: what lives has a whole ttl from now on.
  for n = 1, names do
    local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'gone')
    if c[1] and not c[3] and (not c[2] or value_of(n) == proof(c[1], id)) then
      redis.call('PEXPIRE', claim_key(n), ttl)
      keep(queue_key(n), ttl)
      if c[2] and (c[1] == 'exclusive' or redis.call('PTTL', lock_key(n)) < ttl) then
        redis.call('PEXPIRE', lock_key(n), ttl)
      end
    end
  end
end
return { 'in', positions() }

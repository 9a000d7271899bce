-- Somebody is there, or was.
local known = false
for n = 1, names do
  if redis.call('EXISTS', KEYS[4 * n]) == 1 then known = true end
end

local function kind(text)
  if string.sub(text, 1, 6) == 'slots:' then return text end
  return 'mutex'
end

if not known then
  for n = 1, names do
    settle(n)
    local head = redis.call('ZRANGE', KEYS[4 * n - 2], 0, 0)[1]
    if head then
      local c = redis.call('HMGET', claim_of(n, head), 'mode', 'about')
      if c[1] and kind(c[1]) ~= kind(mode) then return { 'mismatch', n, c[1], c[2] } end
    end
  end
  for n = 1, names do
    if newest == '1' then
      for _, who in ipairs(redis.call('ZRANGE', KEYS[4 * n - 2], 0, -1)) do
        local c = redis.call('HMGET', claim_of(n, who), 'token', 'newest')
        if not c[1] and c[2] == '1' then remove(n, who, 'superseded', by) end
      end
    end
    local last = redis.call('ZRANGE', KEYS[4 * n - 2], -1, -1, 'WITHSCORES')[2]
    redis.call('HSET', KEYS[4 * n], 'mode', mode, 'about', about, 'since', string.format('%.0f', now), 'newest', newest)
    redis.call('PEXPIRE', KEYS[4 * n], ttl)
    redis.call('ZADD', KEYS[4 * n - 2], tonumber(last or 0) + 1, id)
    keep_line(n, ttl)
  end
end
for n = 1, names do settle(n) end
if known then
  -- Asked again, as when the first answer was lost: what lives has a whole ttl from now on.
  for n = 1, names do
    local c = redis.call('HMGET', KEYS[4 * n], 'mode', 'token', 'gone')
    if c[1] and not c[3] and (not c[2] or value_of(n) == proof(c[1], id)) then
      redis.call('PEXPIRE', KEYS[4 * n], ttl)
      keep_line(n, ttl)
      if c[2] and (c[1] == 'exclusive' or redis.call('PTTL', KEYS[4 * n - 3]) < ttl) then
        redis.call('PEXPIRE', KEYS[4 * n - 3], ttl)
      end
    end
  end
end
return { 'in', standings() }

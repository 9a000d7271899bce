for n = 1, names do
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'held')
  local value = value_of(n)
  local holds = c[1] and c[2] and value == proof(c[1], id)
  redis.call('ZREM', queue_key(n), id)
  if value == id then redis.call('DEL', lock_key(n)) end
  redis.call('DEL', claim_key(n))
  if ARGV[more + 1] ~= '0' then
    redis.call('HSET', claim_key(n), 'gone', 'left')
    redis.call('PEXPIRE', claim_key(n), ARGV[more + 1])
  end
  if holds and ARGV[more] == '1' then record_success(n, c[3]) end
  settle(n)
end
return 1

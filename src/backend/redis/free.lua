-- Lets go of an exclusive hold alone, while its other keys are on the way to another node. Key: the lock. Argument: id.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0

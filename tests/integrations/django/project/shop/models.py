from django.db import models


class Order(models.Model):
    number = models.IntegerField()
    paid = models.BooleanField(default=False)
